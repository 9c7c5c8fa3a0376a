// The journey of bench/journey.py for k6.
import { check } from "k6";
import http from "k6/http";

const target = __ENV.TARGET;

export default () => {
  const token = http.post(`${target}/login`, JSON.stringify({ user: "a", password: "b" })).json("token");
  const id = http.get(`${target}/items?token=${token}`).json("items.0.id");
  const item = http.get(`${target}/items/${id}?token=${token}`);
  check(item, { ok: (answer) => answer.status === 200 });
};
