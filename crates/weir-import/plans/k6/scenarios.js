import http from 'k6/http';
import { check } from 'k6';
import { Trend } from 'k6/metrics';
const trend = new Trend('waiting');
export const options = {
  scenarios: {
    browse: { executor: 'constant-arrival-rate', rate: 20, timeUnit: '1s', duration: '1m', preAllocatedVUs: 50, maxVUs: 200, exec: 'browse' },
    buy: { executor: 'ramping-vus', startVUs: 0, stages: [{ duration: '20s', target: 5 }, { duration: '40s', target: 5 }], exec: 'buy', startTime: '10s' },
    odd: { executor: 'externally-controlled', exec: 'buy' },
  },
};
export function setup() {
  const res = http.post('http://127.0.0.1:8080/oauth', { grant: 'client', client_secret: 'hush-client-secret' });
  return { token: res.json('access_token') };
}
export function browse() {
  const r = http.get('http://127.0.0.1:8080/list');
  trend.add(r.timings.waiting);
  check(r, { 'is html': (r) => r.headers['Content-Type'].includes('html') && r.body.includes('<ul>') });
}
export function buy(data) {
  http.request('PUT', 'http://127.0.0.1:8080/cart', JSON.stringify({ a: [1, 2.5, true, null] }), {
    headers: { 'Content-Type': 'application/json', Authorization: 'Bearer ' + data.token },
    timeout: '5s',
  });
}
export function teardown(data) {
  http.del('http://127.0.0.1:8080/all', null, { headers: { Authorization: `Bearer ${data.token}` } });
}
