// Its first thread ends at once. Another writes a byte to stdout fifty times a second, for so many seconds; one tenth of one unless said.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int times = 5;

static void *work(void *nothing) {
    for (int i = 0; i < times; i++) {
        putchar('.');
        fflush(stdout);
        usleep(20000);
    }
    exit(0);
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc > 1)
        times = 50 * atoi(argv[1]);
    return pthread_create(&thread, 0, work, 0) ? 1 : (pthread_exit(0), 0);
}
