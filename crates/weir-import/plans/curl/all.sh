# Copy all as cURL
curl 'http://127.0.0.1:8080/' -H 'Accept: text/html' -H 'User-Agent: Gecko' ;
curl 'http://127.0.0.1:8080/login' -X POST -H 'User-Agent: Gecko' -H 'Content-Type: application/x-www-form-urlencoded' --data-raw 'user=ann&password=hush-word-1&next=%2Fa+b' ;
curl 'http://127.0.0.1:8080/items/7' -X DELETE -H 'User-Agent: Gecko' ;
curl -s 'http://127.0.0.1:8080/items' -H 'User-Agent: Gecko' | jq .
echo done
