# The loop of ottla.env.sync_loop in C: what Python cannot say is to stay away from its lock.

cdef extern from *:
    """
    #if defined(__linux__) && !defined(_GNU_SOURCE)
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <fcntl.h>
    #include <stdint.h>
    #include <unistd.h>

    enum { OTTLA_SYNCS = 16 };
    typedef struct { int32_t token, number; } ottla_sync_message;

    #if defined(__linux__)
    #define ottla_sync fdatasync
    static int ottla_begin_sync(int descriptor) {
        if (sync_file_range(descriptor, 0, 0, SYNC_FILE_RANGE_WRITE) == 0) return 0;
        return errno == EIO ? EIO : 0;  /* Others: the file system has no such call. */
    }
    #else
    #define ottla_sync fsync
    static int ottla_begin_sync(int descriptor) { (void)descriptor; return 0; }
    #endif

    static void ottla_serve_syncs(int requests, int outcomes) {
        ottla_sync_message messages[OTTLA_SYNCS];
        int failed[OTTLA_SYNCS];
        for (;;) {
            ssize_t moved;
            do moved = read(requests, messages, sizeof messages); while (moved < 0 && errno == EINTR);
            int count = (int)(moved / (ssize_t)sizeof *messages);
            if (count < 1) return;
            for (int n = 0; n < count; n++)
                failed[n] = count > 1 ? ottla_begin_sync(messages[n].number) : 0;
            for (int n = 0; n < count; n++) {
                int result;
                do result = ottla_sync(messages[n].number); while (result < 0 && errno == EINTR);
                messages[n].number = result < 0 ? errno : failed[n];
            }
            do moved = write(outcomes, messages, count * sizeof *messages);
            while (moved < 0 && errno == EINTR);
            if (moved < 0) return;
        }
    }
    """
    void ottla_serve_syncs(int requests, int outcomes) noexcept nogil
