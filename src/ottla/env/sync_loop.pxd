# The loop of ottla.env.sync_loop in C: what Python cannot say is to stay away from its lock.

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <fcntl.h>
    #include <stdint.h>
    #include <time.h>
    #include <unistd.h>

    #if defined(__linux__)
    #include <sys/syscall.h>
    #include <sys/vfs.h>
    #define ottla_sync fdatasync
    #else
    #define ottla_sync fsync
    #endif

    typedef struct { int32_t token, count; int64_t what; } ottla_request;
    typedef struct { int32_t token, error, microseconds; } ottla_outcome;

    static int ottla_sync_one(int number) {
        int result;
        do result = ottla_sync(number); while (result < 0 && errno == EINTR);
        return result < 0 ? errno : 0;
    }

    #if defined(__linux__) && defined(SYS_syncfs) && defined(SYNC_FILE_RANGE_WRITE)
    #define OTTLA_SYNCS_TOGETHER 1
    static int ottla_sync_together(const int32_t *numbers, int count) {
        int error = 0;
        for (int at = 1; at <= count; at++) {
            int result;
            do result = sync_file_range(numbers[at], 0, 0, SYNC_FILE_RANGE_WRITE);
            while (result < 0 && errno == EINTR);
            if (result < 0 && !error) error = errno;
        }
        long result;
        do result = syscall(SYS_syncfs, (int)numbers[0]); while (result < 0 && errno == EINTR);
        if (result < 0 && !error) error = errno;
        if (count && !error) error = ottla_sync_one(numbers[1]);
        return error;
    }
    static long ottla_file_system(int number) {
        struct statfs found;
        return fstatfs(number, &found) < 0 ? 0 : (long)found.f_type;
    }
    #else
    #define OTTLA_SYNCS_TOGETHER 0
    static int ottla_sync_together(const int32_t *numbers, int count) {
        (void)numbers, (void)count;
        return ENOSYS;
    }
    static long ottla_file_system(int number) { return (void)number, 0; }
    #endif

    static int64_t ottla_microseconds(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    }

    static void ottla_serve_syncs(int requests, int outcomes) {
        ottla_request request;
        ottla_outcome outcome;
        for (;;) {
            ssize_t moved;
            do moved = read(requests, &request, sizeof request);
            while (moved < 0 && errno == EINTR);
            if (moved != (ssize_t)sizeof request) return;
            int64_t began = ottla_microseconds();
            outcome.token = request.token;
            outcome.error = request.count < 0 ? ottla_sync_one((int)request.what)
                : ottla_sync_together((const int32_t *)(intptr_t)request.what, request.count);
            int64_t took = ottla_microseconds() - began;
            outcome.microseconds = took > INT32_MAX ? INT32_MAX : (int32_t)took;
            do moved = write(outcomes, &outcome, sizeof outcome);
            while (moved < 0 && errno == EINTR);
            if (moved < 0) return;
        }
    }
    """
    void ottla_serve_syncs(int requests, int outcomes) noexcept nogil
    int ottla_sync_together(const int *numbers, int count) noexcept nogil
    long ottla_file_system(int number) noexcept nogil
    const int OTTLA_SYNCS_TOGETHER
