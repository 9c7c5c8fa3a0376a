curl --http2 'https://a.example/x?access_token=hush-token-55&b=1#frag'
curl --unknown-flag x https://a.example/
curl -X CONNECT https://a.example/
curl -b cookies.txt https://a.example/
curl
curl -H 'Authorization: hush-plain-credential' -H 'X-Empty;' -H 'Accept:' https://a.example/y
curl https://a.example/z -d @body.json -H 'Content-Type: application/json'
