"""Mapping rules and names of certificates, usual and odd, for Ottla's rules and for Kafka's.

``PAIRS`` has rules and names whose user must be the same; ``REFUSED`` has rules that Kafka would
take, or would fail with at each client, and which Ottla refuses at the start.
"""

DN = "CN=kafka1.example.org,OU=Test,O=Ottla,C=AT"
LISTS = [
    *("DEFAULT", " DEFAULT ", "DEFAULT,", ",DEFAULT", "DEFAULT,,DEFAULT", "default", "DEFAULTX"),
    *("RULE:", "RULE:a", "RULE:a/b", "RULE:a/b/", "RULE://x/", "RULE:.*//", "DEFAULT DEFAULT"),
    *("RULE:.*/x/LU", "RULE:.*/x/l", "RULE:.*/x/L/", "RULE:.*/x/ L", "RULE:.*/x/L ,\tDEFAULT"),
    *("RULE:.*/x/L DEFAULT", "RULE:^nope$/x/,DEFAULT foo", r"RULE:^(.*)$/$1", r"RULE:^(.*)$"),
    "RULE:^CN=(.*),OU=(.*)$/$1/,RULE:^.*$/other/,DEFAULT",
    "RULE:^UID=(.*)$/$1/,RULE:x/y/",
    "RULE:^(.*)$/$1/L,RULE:^(.*)$/$1/U",
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2\/$3/L",
]
REPLACEMENTS = [
    *("$0", "$1", "$2", "$7", "$10", "$11", "$12", "$01", "$00", "<$1>", r"\$1", r"\\", r"\n"),
    *("", "$1$1", "a,b", r"a\/b"),
]
PATTERNS = [
    *("(.*)", "^(.*)$", ".*?", ".*", "(CN=.*?)", "^(.)(.*)$", "(a|b|.)*", "^(a)?.*$"),
    *("^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$", r"^CN=(.*?)\,.*$", "^CN=(.*?)[,].*$", r"(.*)\/?"),
    *("^(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)(.).*$", "(?i)^cn=(.*)$", "^CN=(.*+)$", "^CN=(?>.*)$"),
    *(r"^CN=(.*)\z", r"^CN=(.*)\Z", r"\A(.*)$", "^CN=(.{1,6}).*$", r"^(.)(.*)\1$"),
    *("^[]a]*$", "^[^]a]*$", r"^[^\]a]*$", "^[a&b]*$", "^[a{2}]*$", "^[^.]*.*$", "^[(?i)]*.*$"),
    *("(^CN=(?:a|k).*)$", "(?=.*OU)(.*)$", "(?<=x)(.*)|(.*)$", r"^CN=(\S+?),.*$", r"\.*(.*)"),
    *("^(?<x>.*)$", r"^(?<a>.)(.*)\k<a>$", "(?s)^CN=(.*)$", r"^CN=(.*?)\$.*$", "^CN=([^,]*),.*$"),
]
NAMES = [
    *("CN=Jürgen,O=x", "CN=ŞİRİN,O=x", "CN=ß,O=x", "CN=ΣΑΣ,O=x", "CN=٣,O=x", "CN=😀,O=x"),
    *("CN=a\nb,O=x", "CN=a\rb,O=x", "CN=a\u2028b,O=x", "CN=a\u0085b,O=x", "CN=\u00a0a,O=x"),
    *("CN=a\\,b,O=x", 'CN=\\"a\\",O=x', "CN=\\#a,O=x", "CN=a\\\\,O=x", "CN=a/b,O=x", "CN=$1,O=x"),
    *("", "CN=", "CN=\uff41dmin,O=x", "CN=a b,O=x", "CN=admin\n"),
]
RULES_OF_NAMES = [
    "DEFAULT",
    *(f"RULE:^CN=(.*?),.*$/$1/{case}" for case in ("", "L", "U")),
    *(f"RULE:^CN=({kind}),.*$/$1/,DEFAULT" for kind in (r"\w+", r"\d+", r"\W+", "[^,]+", ".")),
    r"RULE:^CN=(\s?.\s?.*),.*$/<$1>/,DEFAULT",
    "RULE:(?i)^cn=(JÜRGEN|k|[a-z]+),.*$/$1/,DEFAULT",
    "RULE:^CN=admin$/chief/,DEFAULT",
]
PAIRS = [
    *((rules, DN) for rules in LISTS),
    *((f"RULE:{pattern}/$1/,DEFAULT", DN) for pattern in PATTERNS if "(" in pattern),
    *((f"RULE:{pattern}/x/U", DN) for pattern in PATTERNS),
    *((f"RULE:{pattern}/{new}/", DN) for pattern in PATTERNS[:8] for new in REPLACEMENTS),
    *((rules, name) for rules in RULES_OF_NAMES for name in NAMES),
]
REFUSED = {
    "": "nobody could come in",
    " ,": "nobody could come in",
    "RULE:.*/$1/": "there is none",
    "RULE:(.*)/$/": r"a \$ without a number",
    "RULE:(.*)/$x/": r"a \$ without a number",
    "RULE:(.*)/${x}/": "names no group",
    r"RULE:\p{Alpha}+/x/": r"has \\p, which",
    r"RULE:\QCN=\E(.*)/x/": r"has \\Q, which",
    r"RULE:\h*/x/": r"has \\h, which",
    r"RULE:\v/x/": r"has \\v, which",
    "RULE:[a-z&&[^b]]+/x/": "sets within sets",
    "RULE:[[:alpha:]]+/x/": "sets within sets",
    "RULE:(?x) a/x/": r"has \(\?x\), which",
    "RULE:(?m)a/x/": r"has \(\?m\), which",
    "RULE:(?u)a/x/": r"has \(\?u\), which",
    "RULE:a(?s)b/x/": r"has \(\?s\), which",
    "RULE:(?P<n>a)/x/": r"has \(\?P, which",
    "RULE:a{,6}/x/": "has {, which",
    "RULE:CN={/x/": "has {, which",
    "RULE:(a/x/": "is wrong",
}
"""By rules, why they are refused (a regular expression)."""
