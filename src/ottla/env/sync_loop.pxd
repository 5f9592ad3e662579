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
        struct { int32_t token, number; } message;
        for (;;) {
            ssize_t moved;
            int result;
            do moved = read(requests, &message, sizeof message); while (moved < 0 && errno == EINTR);
            if (moved != (ssize_t)sizeof message) return;
            do result = ottla_sync(message.number); while (result < 0 && errno == EINTR);
            message.number = result < 0 ? errno : 0;
            do moved = write(outcomes, &message, sizeof message); while (moved < 0 && errno == EINTR);
            if (moved < 0) return;
        }
    }
    """
    void ottla_serve_syncs(int requests, int outcomes) noexcept nogil
