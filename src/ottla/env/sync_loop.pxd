# The loop of ottla.env.sync_loop in C: what Python cannot say is to stay away from its lock.

cdef extern from *:
    """
    #include <errno.h>
    #include <stdint.h>
    #include <unistd.h>

    #if defined(__linux__)
    #define ottla_sync fdatasync
    #else
    #define ottla_sync fsync
    #endif

    static void ottla_serve_syncs(int requests, int outcomes) {
        int32_t message[2];
        for (;;) {
            ssize_t moved;
            int code = 0;
            do moved = read(requests, message, sizeof message); while (moved < 0 && errno == EINTR);
            if (moved != (ssize_t)sizeof message || message[1] < 0) return;
            while (ottla_sync(message[1]) < 0) {
                code = errno;
                if (code != EINTR) break;
                code = 0;
            }
            message[1] = code;
            do moved = write(outcomes, message, sizeof message); while (moved < 0 && errno == EINTR);
            if (moved < 0) return;
        }
    }
    """
    void ottla_serve_syncs(int requests, int outcomes) noexcept nogil
