// The browser's part of grpc_browser.sh. Prints PASS and FAIL lines; exits with 1 after a FAIL.
import { createRequire } from "node:module";

const { MODULES, PORT, TLS_PORT, PAGE_PORT, CHROMIUM, WORK } = process.env;
const puppeteer = createRequire(`${MODULES}/node_modules/`)("puppeteer-core");
const browser = await puppeteer.launch({
  executablePath: CHROMIUM,
  headless: true,
  acceptInsecureCerts: true,
  userDataDir: `${WORK}/profile`,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
let failed = false;
const expect = (text, holds, more) => {
  console.log(`${holds ? "PASS" : "FAIL"} grpc_browser: ${text}${holds ? "" : `: ${more}`}`);
  failed ||= !holds;
};
try {
  for (const [version, base] of [["HTTP/1.1", `http://127.0.0.1:${PORT}`], ["HTTP/2", `https://localhost:${TLS_PORT}`]]) {
    const page = await browser.newPage();
    const network = await page.createCDPSession();
    const spoken = new Set();
    await network.send("Network.enable");
    network.on("Network.responseReceived", ({ response }) => response.url.startsWith(base) && spoken.add(response.protocol));
    await page.goto(`http://127.0.0.1:${PAGE_PORT}/`);
    const seen = await page.evaluate((base) => window.run(base), base);
    for (const { text, holds, more } of seen) expect(`${version}: ${text}`, holds, more);
    const only = version === "HTTP/2" ? "h2" : "http/1.1";
    expect(`${version}: nothing else is spoken`, spoken.size === 1 && spoken.has(only), [...spoken].join(" "));
    await page.close();
  }
} finally {
  await browser.close();
}
process.exit(failed ? 1 : 0);
