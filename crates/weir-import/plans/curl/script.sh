#!/bin/sh
curl -fsSL -u "ann:hush-secret-9" http://api.example:8000/v1/me
curl -X PUT http://api.example:8000/v1/items/1 -H "X-Token: $API_TOKEN" -d '{"a":1}' -H 'Content-Type: application/json'
curl -G http://api.example:8000/v1/search --data-urlencode 'q=a b&c' -d limit=5
curl -k --cacert ca.pem https://other.example/health
curl -I http://api.example:8000/v1/me
curl http://api.example:8000/v1/{a,b}
