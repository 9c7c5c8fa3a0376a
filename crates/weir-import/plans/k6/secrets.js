import http from 'k6/http';
import encoding from 'k6/encoding';
import { crypto } from 'k6/experimental/webcrypto';
import lib from './lib.js';
const password = 'hush-pass-2026';
const API_KEY = 'hush-key-a1b2c3';
const base = 'https://ann:hush%2Durl%2Dpass@127.0.0.1:8080';
const tokenUrl = 'http://127.0.0.1:8080/oauth/token';
const fallback = __ENV.TOKEN || 'hush-default-token-1';
const body = { name: 'ann', clientSecret: 'hush-client-9' };
function login(user, password) {
  return http.post(tokenUrl, `grant=password&user=${user}&password=${password}&note=hush-pass-2026`);
}
export default function () {
  http.get(`http://127.0.0.1:8080/items?api_key=${API_KEY}&q=${encodeURIComponent('a b')}&sid=hush-sid-77`);
  http.get('http://127.0.0.1:8080/me', {
    cookies: { session: 'hush-cookie-1', lang: { value: 'hush-de', replace: true } },
    headers: { Authorization: `Basic ${encoding.b64encode('ann:hush-basic-1')}`, 'X-Trace': fallback },
  });
  http.get(base + '/private');
  http.post('http://127.0.0.1:8080/a', JSON.stringify(body), { headers: { 'Content-Type': 'application/json' } });
  login('ann', 'hush-argument-5');
  http.get('http://127.0.0.1:8080/x?v=zQ8vL2mN4pR6tU8wY0aC2eG4hush', { headers: { Authorization: 'Bearer hush-bearer-' + __VU } });
  if (password === 'hush-other-pass-3') { http.get('http://127.0.0.1:8080/never?token=hush-never-1'); }
}
