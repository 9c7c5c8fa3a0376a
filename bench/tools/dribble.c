// Slow clients: COUNT connections that send one byte at a time, half of them a request head, half a request body.
//
// Each connection sends one byte every INTERVAL_MS, spread evenly over that time. If the gateway closes one, it is
// opened again, as an attacker would. On SIGTERM, prints how often that happened.
//
// usage: dribble PORT COUNT INTERVAL_MS
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char *const HEAD = "GET /slow HTTP/1.1\r\nHost: slow.test\r\nX-Slow: ";
static const char *const BODY = "POST /slow HTTP/1.1\r\nHost: slow.test\r\nContent-Length: 1000000\r\n\r\n";
static volatile sig_atomic_t over;
static int port, one = 1;

static void on_term(int s) { (void)s; over = 1; }

// Heads dribble from the first byte; bodies send their head immediately and dribble from there.
static int open_one(int body) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) return -1;
  if (connect(fd, (void *)&a, sizeof a)) { close(fd); return -1; }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (body) send(fd, BODY, strlen(BODY), MSG_NOSIGNAL | MSG_DONTWAIT);
  return fd;
}

static int closed(int fd) {
  char b[4096];
  ssize_t r = recv(fd, b, sizeof b, MSG_DONTWAIT);
  return r == 0 || (r < 0 && errno != EAGAIN);
}

int main(int argc, char **argv) {
  if (argc < 4) return fprintf(stderr, "usage: dribble PORT COUNT INTERVAL_MS\n"), 2;
  port = atoi(argv[1]);
  int count = atoi(argv[2]), interval = atoi(argv[3]), steps = interval / 10 ? interval / 10 : 1;
  int *fds = calloc(count, sizeof *fds);
  size_t *at = calloc(count, sizeof *at);
  unsigned long sent = 0, reopened = 0, refused = 0;
  struct sigaction on_end = {.sa_handler = on_term};
  sigaction(SIGTERM, &on_end, NULL);
  for (int i = 0; i < count; i++) fds[i] = open_one(i & 1);
  puts("open");
  fflush(stdout);
  for (int step = 0; !over; step = (step + 1) % steps) {
    for (int i = step; i < count && !over; i += steps) {
      if (fds[i] >= 0 && closed(fds[i])) { close(fds[i]); fds[i] = -1; reopened++; }
      if (fds[i] < 0) { at[i] = 0; if ((fds[i] = open_one(i & 1)) < 0) { refused++; continue; } }
      const char *b = i & 1 ? "x" : at[i] < strlen(HEAD) ? HEAD + at[i] : "x";
      if (send(fds[i], b, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) { at[i]++; sent++; }
    }
    nanosleep(&(struct timespec){.tv_nsec = 10 * 1000000}, NULL);
  }
  printf("sent %lu reopened %lu refused %lu\n", sent, reopened, refused);
  return 0;
}
