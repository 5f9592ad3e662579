import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Reads lines "RULES NAME" in hex, with "-" for no text; says the user that Kafka makes of each. */
public class PrincipalNames {
    static String text(String hex) {
        return hex.equals("-") ? "" : new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }

    static String user(String rules, String name) {
        SslPrincipalMapper mapper;
        try {
            mapper = SslPrincipalMapper.fromRules(rules);
        } catch (RuntimeException error) {
            return "refused";
        }
        try {
            String user = mapper.getName(name);
            return "user " + HexFormat.of().formatHex(user.getBytes(StandardCharsets.UTF_8));
        } catch (Exception error) {
            return "nobody";
        }
    }

    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNext()) {
            System.out.println(user(text(lines.next()), text(lines.next())));
        }
    }
}
