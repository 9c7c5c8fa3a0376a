// The lower bound for any proxy: a single-threaded epoll TCP relay that parses nothing.
//
// One upstream connection per client connection; one read and one write per message and direction. Costs of a gateway
// above this are its own work; this part is the kernel's.
//
// usage: relay LISTEN_PORT UPSTREAM_PORT
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 512, FDS = 1 << 16 };
static int peer[FDS];
static int one = 1;

static struct sockaddr_in loopback(int port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  return a;
}

static void watch(int ep, int fd) {
  struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
  epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
}

static void part(int fd) {
  int p = peer[fd];
  peer[fd] = peer[p] = 0;
  close(fd);
  close(p);
}

int main(int argc, char **argv) {
  if (argc < 3) return fprintf(stderr, "usage: relay LISTEN_PORT UPSTREAM_PORT\n"), 2;
  struct sockaddr_in la = loopback(atoi(argv[1])), ua = loopback(atoi(argv[2]));
  int l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(l, (void *)&la, sizeof la) || listen(l, 4096)) return perror("listen"), 1;
  int ep = epoll_create1(0);
  struct epoll_event evs[EVENTS];
  watch(ep, l);
  static char buf[65536];
  for (;;) {
    int n = epoll_wait(ep, evs, EVENTS, -1);
    for (int i = 0; i < n; i++) {
      int fd = evs[i].data.fd;
      if (fd == l) {
        int c;
        // Both sides stay blocking for send: a full socket buffer makes the relay wait, which is its only flow
        // control.
        while ((c = accept4(l, 0, 0, 0)) >= 0) {
          int u = socket(AF_INET, SOCK_STREAM, 0);
          if (u < 0 || u >= FDS || c >= FDS || connect(u, (void *)&ua, sizeof ua)) { close(u); close(c); continue; }
          setsockopt(u, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
          setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
          peer[c] = u;
          peer[u] = c;
          watch(ep, c);
          watch(ep, u);
        }
        continue;
      }
      if (!peer[fd]) continue;
      ssize_t r = recv(fd, buf, sizeof buf, MSG_DONTWAIT);
      if (r < 0 && errno == EAGAIN) continue;
      if (r <= 0) { part(fd); continue; }
      for (ssize_t o = 0; o < r;) {
        ssize_t w = send(peer[fd], buf + o, r - o, MSG_NOSIGNAL);
        if (w <= 0) break;
        o += w;
      }
    }
  }
}
