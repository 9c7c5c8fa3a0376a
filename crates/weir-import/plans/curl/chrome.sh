curl 'https://shop.example/api/orders?page=2' \
  -H 'accept: application/json' \
  -H 'accept-language: en-US,en;q=0.9' \
  -H 'authorization: Bearer hush.bearer.token-123' \
  -b 'sid=hush-cookie-99; theme=dark' \
  -H 'user-agent: Mozilla/5.0' \
  --data-raw $'{"sku":"A\u00e9-1","count":2,"note":"it\'s"}' \
  -H 'content-type: application/json' \
  --compressed
