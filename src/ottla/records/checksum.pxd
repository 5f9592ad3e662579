# CRC32C by the processor's instruction, for the loops that run without the interpreter's lock: the one
# thing that Python cannot say. Compiled kernels use it, interpreted forms call ottla.records.crc. Each
# kernel has a copy of its own, and calls ottla_crc32c_choose once before the first sum. On x86-64 SSE
# 4.2 is asked for at run time. The instruction takes 8 bytes a cycle, but gives its result after three,
# so long data is summed in three places at once; sums are linear, and tables say what a sum becomes
# when so many zeros follow (the way is Mark Adler's). Elsewhere tables, 8 bytes a step.

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    static uint32_t ottla_crc32c_tables[8][256];

    static void ottla_crc32c_fill(void) {
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t sum = n;
            for (int bit = 0; bit < 8; bit++) sum = (sum >> 1) ^ (0x82F63B78u & (0u - (sum & 1u)));
            ottla_crc32c_tables[0][n] = sum;
        }
        for (int table = 1; table < 8; table++)
            for (uint32_t n = 0; n < 256; n++) {
                uint32_t sum = ottla_crc32c_tables[table - 1][n];
                ottla_crc32c_tables[table][n] = (sum >> 8) ^ ottla_crc32c_tables[0][sum & 0xFF];
            }
    }

    static uint32_t ottla_crc32c_portable(const unsigned char *data, size_t size) {
        const uint32_t (*t)[256] = (const uint32_t (*)[256])ottla_crc32c_tables;
        uint32_t sum = 0xFFFFFFFFu;
        for (; size >= 8; size -= 8, data += 8) {
            uint32_t low = sum ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8
                                  | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
            sum = t[7][low & 0xFF] ^ t[6][(low >> 8) & 0xFF] ^ t[5][(low >> 16) & 0xFF]
                ^ t[4][low >> 24] ^ t[3][data[4]] ^ t[2][data[5]] ^ t[1][data[6]] ^ t[0][data[7]];
        }
        while (size--) sum = (sum >> 8) ^ t[0][(sum ^ *data++) & 0xFF];
        return ~sum;
    }

    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #define OTTLA_LONG 1024
    #define OTTLA_SHORT 128
    static uint32_t ottla_crc32c_after_long[4][256], ottla_crc32c_after_short[4][256];

    static void ottla_crc32c_fill_after(uint32_t table[4][256], int zeros) {
        uint32_t bits[32];
        for (int bit = 0; bit < 32; bit++) {
            uint32_t sum = 1u << bit;
            for (int n = 0; n < zeros; n++) sum = (sum >> 8) ^ ottla_crc32c_tables[0][sum & 0xFF];
            bits[bit] = sum;
        }
        for (int byte = 0; byte < 4; byte++)
            for (int n = 0; n < 256; n++) {
                uint32_t sum = 0;
                for (int bit = 0; bit < 8; bit++) if (n >> bit & 1) sum ^= bits[8 * byte + bit];
                table[byte][n] = sum;
            }
    }

    static uint32_t ottla_crc32c_after(const uint32_t table[4][256], uint32_t sum) {
        return table[0][sum & 0xFF] ^ table[1][sum >> 8 & 0xFF] ^ table[2][sum >> 16 & 0xFF]
             ^ table[3][sum >> 24];
    }

    __attribute__((target("sse4.2")))
    static uint32_t ottla_crc32c_three(const unsigned char *data, uint32_t start, int size,
                                       const uint32_t table[4][256]) {
        uint64_t first = start, second = 0, third = 0;
        for (const unsigned char *end = data + size; data < end; data += 8) {
            uint64_t a, b, c;
            memcpy(&a, data, 8);
            memcpy(&b, data + size, 8);
            memcpy(&c, data + 2 * size, 8);
            first = __builtin_ia32_crc32di(first, a);
            second = __builtin_ia32_crc32di(second, b);
            third = __builtin_ia32_crc32di(third, c);
        }
        uint32_t sum = ottla_crc32c_after(table, (uint32_t)first) ^ (uint32_t)second;
        return ottla_crc32c_after(table, sum) ^ (uint32_t)third;
    }

    __attribute__((target("sse4.2")))
    static uint32_t ottla_crc32c_sse42(const unsigned char *data, size_t size) {
        uint64_t sum = 0xFFFFFFFFu;
        for (; size >= 3 * OTTLA_LONG; size -= 3 * OTTLA_LONG, data += 3 * OTTLA_LONG)
            sum = ottla_crc32c_three(data, (uint32_t)sum, OTTLA_LONG, ottla_crc32c_after_long);
        for (; size >= 3 * OTTLA_SHORT; size -= 3 * OTTLA_SHORT, data += 3 * OTTLA_SHORT)
            sum = ottla_crc32c_three(data, (uint32_t)sum, OTTLA_SHORT, ottla_crc32c_after_short);
        for (; size >= 8; size -= 8, data += 8) {
            uint64_t word;
            memcpy(&word, data, 8);
            sum = __builtin_ia32_crc32di(sum, word);
        }
        uint32_t rest = (uint32_t)sum;
        while (size--) rest = __builtin_ia32_crc32qi(rest, *data++);
        return ~rest;
    }
    static uint32_t (*ottla_crc32c)(const unsigned char *, size_t) = ottla_crc32c_portable;
    static void ottla_crc32c_choose(void) {
        ottla_crc32c_fill();
        if (!__builtin_cpu_supports("sse4.2")) return;
        ottla_crc32c_fill_after(ottla_crc32c_after_long, OTTLA_LONG);
        ottla_crc32c_fill_after(ottla_crc32c_after_short, OTTLA_SHORT);
        ottla_crc32c = ottla_crc32c_sse42;
    }
    #else
    #define ottla_crc32c ottla_crc32c_portable
    #define ottla_crc32c_choose ottla_crc32c_fill
    #endif
    """
    void ottla_crc32c_choose() noexcept nogil
    unsigned int ottla_crc32c(const unsigned char *data, size_t size) noexcept nogil
    unsigned int ottla_crc32c_portable(const unsigned char *data, size_t size) noexcept nogil
