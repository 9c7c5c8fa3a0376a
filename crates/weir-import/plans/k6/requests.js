import http from 'k6/http';
import h2 from 'k6/http';
import ws from 'k6/ws';
import { check } from 'k6';
export const options = { vus: 1, iterations: 1, dns: { ttl: '1m' } };
const unused = () => 1;
const early = http.get('http://127.0.0.1:8080/early');
function never() { return http.get('http://127.0.0.1:8080/never'); }
export default function () {
  const token = http.post('http://127.0.0.1:8080/login', { user: 'ann' }).json('token');
  const list = [http.get('http://127.0.0.1:8080/a'), h2.get('http://127.0.0.1:8080/b')];
  check(http.get('http://127.0.0.1:8080/c'), { ok: (r) => r.status === 200 });
  console.log(http.get('http://127.0.0.1:8080/d').status);
  const x = __VU > 1 ? http.get('http://127.0.0.1:8080/e') : http.get('http://127.0.0.1:8080/f');
  token && http.get('http://127.0.0.1:8080/g');
  while (token) { http.get('http://127.0.0.1:8080/h'); }
  for (const item of list) { http.get(`http://127.0.0.1:8080/i/${item}`); }
  try { http.get('http://127.0.0.1:8080/j'); } catch (e) {}
  const answers = http.batch([['GET', 'http://127.0.0.1:8080/k'], { method: 'POST', url: 'http://127.0.0.1:8080/l', body: 'x' }]);
  http.get(`http://127.0.0.1:8080/m${answers[0].json('next')}?id=${encodeURIComponent(token)}`);
  http.get(http.url`http://127.0.0.1:8080/n/${token}`);
  const client = http;
  ws.connect('ws://127.0.0.1:8080/o', null, function (socket) { socket.send('x'); });
  return http.get('http://127.0.0.1:8080/p');
}
export function handleSummary(data) { return {}; }
