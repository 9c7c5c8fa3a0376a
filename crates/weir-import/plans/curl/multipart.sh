curl -F 'title=A title' -F 'kind=x;type=text/plain' http://127.0.0.1:8080/upload --max-time 2.5
curl --json '{"a":[1,2.5,null]}' http://127.0.0.1:8080/json
curl --form-string 'a=@b' http://127.0.0.1:8080/form
