import http from 'k6/http';
import encoding from 'k6/encoding';
import { uuidv4, randomIntBetween } from 'https://jslib.k6.io/k6-utils/1.4.0/index.js';
export const options = { iterations: 5 };
export default function () {
  const id = uuidv4();
  http.get(`http://127.0.0.1:8080/x/${id}?n=${randomIntBetween(1, 9)}&at=${Date.now()}`, {
    headers: { Authorization: `Basic ${encoding.b64encode(`ann:${__ENV.PASSWORD}`)}`, 'X-Api-Key': 'hush-key-12345' },
  });
}
