// The lower bound for any proxy: a single-threaded epoll TCP relay that parses nothing.
//
// One upstream connection per client connection; one read and one write per message and direction. Costs of a gateway
// above this are its own work; this part is the kernel's.
//
// With `close` it takes one read of a client for a request and one read of the upstream for the answer. Then it closes
// the client and keeps the upstream connection for the next client, as a gateway does.
//
// usage: relay LISTEN_PORT UPSTREAM_PORT [close]
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 512, FDS = 1 << 16 };
static int peer[FDS];
static int idle[FDS], idles; // kept connections of `close`
static char answers[FDS]; // whether it is a connection to the upstream
static char buf[65536];
static int one = 1, closes;

static struct sockaddr_in loopback(int port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  return a;
}

static void watch(int ep, int fd) {
  struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
  epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
}

static int dial(int ep, struct sockaddr_in *to) {
  int u = socket(AF_INET, SOCK_STREAM, 0);
  if (u < 0 || u >= FDS || connect(u, (void *)to, sizeof *to)) { close(u); return -1; }
  setsockopt(u, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  answers[u] = 1;
  watch(ep, u);
  return u;
}

static void part(int fd) {
  int p = peer[fd];
  peer[fd] = peer[p] = 0;
  close(fd);
  close(p);
}

// Sends the answer of `n` bytes in `buf`, with a field that says that the connection ends.
static void answer(int to, size_t n) {
  char *fields = memchr(buf, '\n', n);
  size_t line = fields ? fields + 1 - buf : 0;
  struct iovec parts[] = {{buf, line}, {"connection: close\r\n", line ? 19 : 0}, {buf + line, n - line}};
  struct msghdr all = {.msg_iov = parts, .msg_iovlen = 3};
  sendmsg(to, &all, MSG_NOSIGNAL);
}

static void pass(int from, int to) {
  ssize_t r = recv(from, buf, sizeof buf, MSG_DONTWAIT);
  if (r < 0 && errno == EAGAIN) return;
  if (r <= 0) { part(from); return; }
  if (closes && answers[from]) {
    answer(to, r);
    peer[from] = peer[to] = 0;
    close(to);
    idle[idles++] = from;
    return;
  }
  for (ssize_t o = 0; o < r;) {
    ssize_t w = send(to, buf + o, r - o, MSG_NOSIGNAL);
    if (w <= 0) break;
    o += w;
  }
}

int main(int argc, char **argv) {
  if (argc < 3) return fprintf(stderr, "usage: relay LISTEN_PORT UPSTREAM_PORT [close]\n"), 2;
  closes = argc > 3;
  struct sockaddr_in la = loopback(atoi(argv[1])), ua = loopback(atoi(argv[2]));
  int l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(l, (void *)&la, sizeof la) || listen(l, 4096)) return perror("listen"), 1;
  int ep = epoll_create1(0);
  struct epoll_event evs[EVENTS];
  watch(ep, l);
  for (;;) {
    int n = epoll_wait(ep, evs, EVENTS, -1);
    for (int i = 0; i < n; i++) {
      int fd = evs[i].data.fd;
      if (fd == l) {
        int c;
        // Both sides stay blocking for send: a full socket buffer makes the relay wait, which is its only flow
        // control.
        while ((c = accept4(l, 0, 0, 0)) >= 0) {
          int u = idles ? idle[--idles] : dial(ep, &ua);
          if (u < 0 || c >= FDS) { close(u); close(c); continue; }
          setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
          peer[c] = u;
          peer[u] = c;
          answers[c] = 0;
          if (closes) pass(c, u); // the request is often there, and then the client need not be watched
          if (peer[c]) watch(ep, c);
        }
        continue;
      }
      if (peer[fd]) pass(fd, peer[fd]);
    }
  }
}
