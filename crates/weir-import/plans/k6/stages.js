import http from 'k6/http';
export let options = {
  stages: [
    { duration: '30s', target: 20 },
    { duration: '1m', target: 20 },
    { duration: '10s', target: 0 },
  ],
};
export default () => {
  http.get('http://127.0.0.1:8080/');
  for (let i = 0; i < 3; i++) {
    http.get(`http://127.0.0.1:8080/page/${i}`);
  }
  http.batch(['http://127.0.0.1:8080/a.css', ['GET', 'http://127.0.0.1:8080/b.js']]);
};
