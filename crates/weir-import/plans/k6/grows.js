import http from 'k6/http';
const a0 = 'xxxxxxxx';
const a1 = `${a0}${a0}`;
const a2 = `${a1}${a1}`;
const a3 = `${a2}${a2}`;
const a4 = `${a3}${a3}`;
const a5 = `${a4}${a4}`;
const a6 = `${a5}${a5}`;
const a7 = `${a6}${a6}`;
const a8 = `${a7}${a7}`;
const a9 = `${a8}${a8}`;
const a10 = `${a9}${a9}`;
const a11 = `${a10}${a10}`;
const a12 = `${a11}${a11}`;
const a13 = `${a12}${a12}`;
const a14 = `${a13}${a13}`;
const a15 = `${a14}${a14}`;
const a16 = `${a15}${a15}`;
const a17 = `${a16}${a16}`;
const a18 = `${a17}${a17}`;
const a19 = `${a18}${a18}`;
const a20 = `${a19}${a19}`;
const a21 = `${a20}${a20}`;
const a22 = `${a21}${a21}`;
const a23 = `${a22}${a22}`;
const a24 = `${a23}${a23}`;
const a25 = `${a24}${a24}`;
const a26 = `${a25}${a25}`;
const a27 = `${a26}${a26}`;
const a28 = `${a27}${a27}`;
const a29 = `${a28}${a28}`;
const a30 = `${a29}${a29}`;
const l1 = [a1, a1];
const l2 = [l1, l1];
const l3 = [l2, l2];
const l4 = [l3, l3];
const l5 = [l4, l4];
const l6 = [l5, l5];
const l7 = [l6, l6];
const l8 = [l7, l7];
const l9 = [l8, l8];
const l10 = [l9, l9];
const l11 = [l10, l10];
const l12 = [l11, l11];
const l13 = [l12, l12];
const l14 = [l13, l13];
const l15 = [l14, l14];
const l16 = [l15, l15];
const l17 = [l16, l16];
const l18 = [l17, l17];
const l19 = [l18, l18];
const l20 = [l19, l19];
const l21 = [l20, l20];
const l22 = [l21, l21];
const l23 = [l22, l22];
const l24 = [l23, l23];
const l25 = [l24, l24];
const l26 = [l25, l25];
const l27 = [l26, l26];
const l28 = [l27, l27];
const l29 = [l28, l28];
const l30 = [l29, l29];
function f0() { return 1; }
function f1() { f0(); f0(); f0(); f0(); f0(); f0(); f0(); f0(); f0(); f0(); }
function f2() { f1(); f1(); f1(); f1(); f1(); f1(); f1(); f1(); f1(); f1(); }
function f3() { f2(); f2(); f2(); f2(); f2(); f2(); f2(); f2(); f2(); f2(); }
function f4() { f3(); f3(); f3(); f3(); f3(); f3(); f3(); f3(); f3(); f3(); }
function f5() { f4(); f4(); f4(); f4(); f4(); f4(); f4(); f4(); f4(); f4(); }
function f6() { f5(); f5(); f5(); f5(); f5(); f5(); f5(); f5(); f5(); f5(); }
function f7() { f6(); f6(); f6(); f6(); f6(); f6(); f6(); f6(); f6(); f6(); }
export default function () {
  http.get('http://127.0.0.1:8080/first');
  f7();
  http.get(`http://127.0.0.1:8080/${a30}`);
  http.post('http://127.0.0.1:8080/l', JSON.stringify(l30));
}
