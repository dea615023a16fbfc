/* Preloaded into a server (LD_PRELOAD) by `harness/time_of_day.py`: adds to the time of day the nanoseconds in the
 * file that TIME_OF_DAY_OFFSET names, which the test changes while the server runs. Clocks that only count are not
 * touched: a person who sets the clock of a machine does not touch them, either.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000LL

static const volatile int64_t *offset_ns;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("TIME_OF_DAY_OFFSET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) {
        return;
    }
    void *mapped = mmap(NULL, sizeof *offset_ns, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) {
        offset_ns = mapped;
    }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int outcome = (int)syscall(SYS_clock_gettime, clock, now);
    if (outcome == 0 && clock == CLOCK_REALTIME && offset_ns) {
        int64_t shown_ns = now->tv_sec * SECOND_NS + now->tv_nsec + *offset_ns;
        int64_t nsec = (shown_ns % SECOND_NS + SECOND_NS) % SECOND_NS;
        now->tv_sec = (shown_ns - nsec) / SECOND_NS;
        now->tv_nsec = nsec;
    }
    return outcome;
}
