curl "https://shop.example/a%EE%80%82HOME%EE%80%83/$ID?b=%EE%80%82USER%EE%80%83" -d "x=%EE%80%82PATH%EE%80%83&n=$NAME"
curl "https://shop.example/b" -H 'content-type: application/json' -d '{"a":"\ue002HOME\ue003","b":1}'
curl "https://$WHO:$PASS@shop.example/c" -H "Authorization-Note: zQ8vL2mN4pR6tU8wY0aC2eG4hush"
curl https://shop.example/d -X POST --data '<login><password>hush-xml-1</password></login>' -H 'content-type: text/xml'
