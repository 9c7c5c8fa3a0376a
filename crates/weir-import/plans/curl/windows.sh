curl ^"http://a/^" ^
  -H ^"a: b^"
