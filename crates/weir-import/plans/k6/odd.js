import http from 'k6/http';
import { sleep } from 'k6';
const HOST = __ENV.HOST;
class Client { constructor() {} }
const { a, b } = { a: 1, b: 2 };
export default function () {
  const r = http.get('http://127.0.0.1:8080/first');
  if (r.status === 200) {
    http.get('http://127.0.0.1:8080/never');
  }
  while (true) { sleep(1); }
  http.get(`http://${HOST}/x`);
  http.get('http://127.0.0.1:8080/' + r.body.match(/x(.*)y/)[1]);
  sleep(r.json('wait'));
  http.get('http://127.0.0.1:8080/last?key=abc'.replace('abc', 'x'));
  login('http://127.0.0.1:8080/login', 'ann');
}
function login(url, name) {
  return http.post(url, { user: name, password: __ENV.PASSWORD });
}
