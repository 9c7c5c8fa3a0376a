#!/bin/sh
# Files that the bench files need besides programs: certificates, bodies and a page, made once in .build/.
set -eu
cd "$(dirname "$0")"
mkdir -p .build/www .build/cache
if [ ! -s .build/both.pem ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout .build/key.pem -out .build/cert.pem 2>/dev/null
    cat .build/cert.pem .build/key.pem > .build/both.pem
fi
# 144 bytes of JSON, an order.
printf '{"market":"BTC_USDT","base":"BTC","quote":"USDT","type":"limit","price":"25000","size":"0.0001","side":"sell","user_id":1,"text":"%s"}' \
    abcdefghijkl > .build/order.json
# 766 bytes of JSON; 4 KiB, a page of 27 bytes, and 107 bytes of JSON.
awk 'BEGIN { s = "{\"orders\":\""; while (length(s) < 764) s = s "x"; printf "%s\"}", s }' > .build/www/766.json
awk 'BEGIN { while (length(s) < 4096) s = s "x"; printf "%s", s }' > .build/www/4k.txt
printf 'Hello, this is 27 bytes it.' > .build/www/27.txt
awk 'BEGIN { s = "{\"data\":\""; while (length(s) < 105) s = s "y"; printf "%s\"}", s }' > .build/www/107.json
# About 230 KB that compress about eightfold, like a style sheet.
awk 'BEGIN {
    srand(7);
    while (n < 230000) {
        line = sprintf(".c-%d-%d:hover > .item { margin: %dpx %dpx; color: #%06x; transition: all .%ds ease-in-out }\n",
            rand() * 400, rand() * 40, rand() * 32, rand() * 32, rand() * 400 * 4096, rand() * 9);
        n += length(line); printf "%s", line
    } }' > .build/www/style.css
