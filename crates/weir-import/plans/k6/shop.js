import http from 'k6/http';
import { check, group, sleep } from 'k6';
import { SharedArray } from 'k6/data';

const BASE = __ENV.BASE_URL || 'https://shop.example';
const users = new SharedArray('users', function () {
  return JSON.parse(open('./data/users.json')).users;
});

export const options = {
  vus: 10,
  duration: '30s',
  thresholds: { http_req_duration: ['p(95)<500', 'p(99)<1000'], http_req_failed: ['rate<0.01'] },
};

export default function () {
  const user = users[Math.floor(Math.random() * users.length)];
  const res = http.post(`${BASE}/login`, JSON.stringify({ name: user.name, password: 'hush-pass-1' }), {
    headers: { 'Content-Type': 'application/json' },
  });
  check(res, { 'status is 200': (r) => r.status === 200, 'has token': (r) => r.json('token') !== null });
  const token = res.json().token;
  group('basket', () => {
    http.get(`${BASE}/items?page=${__ITER}`, { headers: { Authorization: `Bearer ${token}` }, tags: { name: 'items' } });
    sleep(1);
    const made = http.post(BASE + '/basket', { sku: 'A-1', count: 2 });
    check(made, { created: (r) => r.status === 200 || r.status === 201, fast: (r) => r.timings.duration < 800 });
  });
  sleep(Math.random() * 3);
}
