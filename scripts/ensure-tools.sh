#!/bin/sh
# Installs missing programs that tests, benchmarks and conformance runs need.
#
# usage: ensure-tools.sh TOOL...        (the names are the rows of `package_of` below)
#
# Go programs are built into ~/.cache/weir-conformance (CONF_TOOLS). Without Go, it says so, and the tests that need
# them are skipped.
#
# Prints nothing if nothing is missing. As root on Debian or Ubuntu it installs the distribution's packages and starts
# no service; elsewhere it prints the one command to run and exits with 1.
set -eu

# The Debian package with a tool.
package_of() {
  case $1 in
    cc) echo gcc libc6-dev ;;
    dpkg-scanpackages) echo dpkg-dev ;;
    etcd) echo etcd-server ;;
    caddy | chromium | curl | faketime | haproxy | mmdebstrap | nginx | openssl | php-fpm | python3 | redis-server | slowhttptest | strace | valgrind | wrk) echo "$1" ;;
    grpcio) echo python3-grpcio ;;
    h2load | nghttp) echo nghttp2-client ;;
    nginx-lua) echo nginx libnginx-mod-http-lua ;;
    objdump) echo binutils ;;
    prometheus | promtool) echo prometheus ;;
    protoc) echo protobuf-compiler ;;
    rpmbuild) echo rpm ;;
    seccomp) echo python3-seccomp ;;
    systemd-analyze) echo systemd ;;
    testssl) echo testssl.sh ;;
    varnishtest) echo varnish ;;
    venv) echo python3-venv ;;
    xz) echo xz-utils ;;
    *) echo "ensure-tools.sh: no tool called '$1' is known here" >&2; return 1 ;;
  esac
}

# Debian puts servers in sbin, which is not in every PATH.
has() {
  case $1 in
    grpcio) /usr/bin/python3 -c 'import grpc' 2>/dev/null ;; # Debian's, whatever stands before it on the path
    nginx-lua) ls /usr/lib/nginx/modules/ngx_http_lua_module.so >/dev/null 2>&1 ;; # a module of nginx
    php-fpm) ls /usr/sbin/php-fpm* /usr/local/sbin/php-fpm* 2>/dev/null | grep -q . ;; # Debian's name has a version
    seccomp) /usr/bin/python3 -c 'import seccomp' 2>/dev/null ;;
    venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    *) PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 ;;
  esac
}

# A tool's Go programs: a folder named after the tool and its version, then the packages to build.
PEBBLE=2.10.1
CONNECT=1.0.7
go_programs() {
  case $1 in
    connectconformance)
      echo "connectconformance-$CONNECT"
      for program in connectconformance grpcserver referenceserver; do echo "connectrpc.com/conformance/cmd/$program@v$CONNECT"; done
      ;;
    pebble) echo "pebble-$PEBBLE" "github.com/letsencrypt/pebble/v2/cmd/pebble@v$PEBBLE" "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@v$PEBBLE" ;;
  esac
}

# Builds elsewhere and moves the result, so that an interrupted build starts again.
build_go() {
  folder=${CONF_TOOLS:-${HOME:-/tmp}/.cache/weir-conformance}/$1
  shift
  [ ! -d "$folder" ] || return 0
  if ! command -v go >/dev/null 2>&1; then
    echo "Go is not installed: ${folder##*/} is not built, and tests that need it are skipped" >&2
    return 0
  fi
  echo "Building: ${folder##*/}" >&2
  mkdir -p "${folder%/*}"
  beside=$(mktemp -d "$folder.XXXXXX")
  if ! GOBIN=$beside go install "$@" </dev/null >&2; then
    rm -rf "$beside"
    echo "Could not build ${folder##*/}" >&2
    return 1
  fi
  chmod 755 "$beside"
  mv -T "$beside" "$folder" 2>/dev/null || rm -rf "$beside" # somebody else was faster
}

missing= packages=
for tool in "$@"; do
  programs=$(go_programs "$tool")
  if [ -n "$programs" ]; then
    # shellcheck disable=SC2086
    build_go $programs || exit 1
    continue
  fi
  package=$(package_of "$tool")
  has "$tool" || { missing="$missing $tool" packages="$packages $package"; }
done
[ -n "$missing" ] || exit 0

install="apt-get install -y --no-install-recommends$packages"
if ! command -v apt-get >/dev/null 2>&1; then
  echo "Missing:$missing. Install them with your package manager; on Debian it would be: $install" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "Missing:$missing. Run: sudo $install" >&2
  exit 1
fi

# A package must not start its server here: it would take port 80 and outlive us. Debian's policy-rc.d prevents that.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT INT TERM
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi
echo "Installing:$packages" >&2
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
log=$(mktemp)
if ! { apt-get update -q && $install -q; } >"$log" 2>&1 </dev/null; then
  tail -n 30 "$log" >&2
  rm -f "$log"
  echo "Could not install. Run: $install" >&2
  exit 1
fi
rm -f "$log"
for tool in $missing; do
  has "$tool" || { echo "'$tool' is still not found after installing$packages" >&2; exit 1; }
done
