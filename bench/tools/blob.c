// The origin for large bodies: GET answers with BYTES zero bytes, any other method swallows its Content-Length body.
//
// One thread per connection, blocking: never the slow part of the chain.
//
// usage: blob PORT BYTES
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHUNK = 1 << 18, HEAD = 65536 };
static const char zeros[CHUNK];
static unsigned long long bytes;

static int send_zeros(int fd, unsigned long long left) {
  while (left) {
    ssize_t w = send(fd, zeros, left < CHUNK ? left : CHUNK, MSG_NOSIGNAL);
    if (w <= 0) return -1;
    left -= w;
  }
  return 0;
}

static int swallow(int fd, unsigned long long left) {
  while (left) {
    ssize_t r = recv(fd, NULL, left < CHUNK ? left : CHUNK, MSG_TRUNC);  // TCP: discard in the kernel, no copy
    if (r <= 0) return -1;
    left -= r;
  }
  return 0;
}

static void *serve(void *arg) {
  int fd = (int)(intptr_t)arg;
  char *head = malloc(HEAD + 1), out[256];
  size_t n = 0;
  for (;;) {
    ssize_t r = n < HEAD ? recv(fd, head + n, HEAD - n, 0) : 0;
    if (r <= 0) break;
    head[n += r] = 0;
    char *end = strstr(head, "\r\n\r\n");
    if (!end) continue;
    size_t extra = n - (end + 4 - head);
    *end = 0;
    char *f = strcasestr(head, "\r\ncontent-length:");
    unsigned long long body = f ? strtoull(f + 17, 0, 10) : 0;
    int get = !strncmp(head, "GET ", 4);
    if (body > extra && swallow(fd, body - extra)) break;
    unsigned long long size = get ? bytes : 0;
    int len = snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %llu\r\n\r\n", size);
    if (send(fd, out, len, MSG_NOSIGNAL) != len || send_zeros(fd, size)) break;
    n = 0;
  }
  free(head);
  close(fd);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc < 3) return fprintf(stderr, "usage: blob PORT BYTES\n"), 2;
  bytes = strtoull(argv[2], 0, 10);
  int one = 1, l = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in la = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(l, (void *)&la, sizeof la) || listen(l, 4096)) return perror("listen"), 1;
  for (int c; (c = accept(l, 0, 0)) >= 0;) {
    setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    pthread_t t;
    if (pthread_create(&t, NULL, serve, (void *)(intptr_t)c)) close(c);
    else pthread_detach(t);
  }
  return 1;
}
