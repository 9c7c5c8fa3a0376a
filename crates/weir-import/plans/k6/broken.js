export default function () { http.get('http://a/ }
