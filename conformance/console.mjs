// The browser's part of console.sh. Prints PASS and FAIL lines; exits with 1 after a FAIL.
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import http from "node:http";

const { WORK, MODULES, PORT, ADMIN_PORT, FLEET_PORT, CHROMIUM, SHOTS } = process.env;
const require = createRequire(`${MODULES}/node_modules/`);
const puppeteer = require("puppeteer-core");
const AXE = readFileSync(`${MODULES}/node_modules/axe-core/axe.min.js`, "utf8");
const BASE = `http://127.0.0.1:${ADMIN_PORT}`;
const FLEET = `http://127.0.0.1:${FLEET_PORT}`;
const DESK = { width: 1440, height: 900 };
const PHONE = { width: 390, height: 844, isMobile: true, hasTouch: true, deviceScaleFactor: 2 };

let failed = false;
function expect(text, holds, more = "") {
  console.log(`${holds ? "PASS" : "FAIL"} console: ${text}${holds || !more ? "" : `: ${more}`}`);
  failed ||= !holds;
}

/// Waits until the test holds in the page, at most ten seconds.
async function until(text, page, test, ...args) {
  try {
    await page.waitForFunction(test, { timeout: 10_000, polling: 50 }, ...args);
    expect(text, true);
  } catch (error) {
    expect(text, false, `${error.message} at ${page.url()}: ${(await page.evaluate(() => document.body.innerText)).slice(0, 600)}`);
  }
}

const get = (path, headers = {}) =>
  new Promise((done) => {
    const request = http.get({ host: "127.0.0.1", port: PORT, path, headers }, (answer) => answer.resume().on("end", () => done(answer.statusCode)));
    request.on("error", () => done(0));
  });

// === traffic, so that there is something to see ===

async function traffic(times) {
  for (let n = 0; n < times; n += 1) {
    await get(`/orders/${n}`);
    await get("/hello");
    if (n % 6 === 0) await get("/reports/monthly");
    if (n % 9 === 0) await get("/nowhere/at/all");
    if (n % 10 === 0) await get("/limited", { "x-api-key": "wrong" });
    await get("/limited", { "x-api-key": "a-key-of-the-crawler" });
  }
}

// === pages ===

const noise = [];
const foreign = [];

function listen(page) {
  page.on("console", (message) => {
    if (["error", "warn", "assert"].includes(message.type())) noise.push(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => noise.push(`${page.url()}: ${error.message}`));
  page.on("request", (request) => {
    if (![BASE, FLEET].some((ours) => request.url().startsWith(ours))) foreign.push(request.url());
  });
}

async function signIn(page, token) {
  await page.goto(`${BASE}/`);
  await page.type("#token", token);
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
}

async function click(page, selector, text) {
  await page.evaluate(
    (selector, text) => [...document.querySelectorAll(selector)].find((element) => element.textContent.includes(text)).click(),
    selector,
    text,
  );
}

async function clickTo(page, selector, text) {
  await Promise.all([page.waitForNavigation(), click(page, selector, text)]);
}

const browser = await puppeteer.launch({
  executablePath: CHROMIUM,
  headless: true,
  userDataDir: mkdtempSync(`${WORK}/profile-`),
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run"],
});

async function main() {
  await traffic(60);
  const page = await browser.newPage();
  await page.setViewport(DESK);
  listen(page);

  // Signing in.
  await page.goto(`${BASE}/routes?q=mail`);
  expect("who has not signed in is shown the way in", page.url().endsWith("/sign-in?to=%2Froutes%3Fq%3Dmail"), page.url());
  await page.type("#token", "wrong");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  expect("a wrong token is refused", await page.evaluate(() => document.querySelector("#wrong")?.textContent.includes("not known")));
  await page.type("#token", "token-of-anna");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  expect("signing in leads where one was going", page.url() === `${BASE}/routes?q=mail`, page.url());
  expect("the filter of the address is applied", await page.evaluate(() => document.querySelector("#count").textContent.startsWith("200 of")));
  expect("no script can read the session", !(await page.evaluate(() => document.cookie)).includes("weir_session"));

  await filter(page);
  await keys(page);
  await drain(page);
  await explain(page);
  await failure(page);
  await editor(page);
  await history(page);
  await owners(page);
  await fleet(page);
  await themes(page);
  await screens(page);
  await withoutScript();
  await roles();

  // The browser itself logs these refusals, which are expected.
  const meant = (line) => /status of 403/.test(line) || (/status of 401/.test(line) && line.includes("/sign-in"));
  const said = noise.filter((line) => !meant(line));
  expect("nothing was said on the console", said.length === 0, said.join("\n"));
  expect("nothing was asked of another host", foreign.length === 0, foreign.join("\n"));
}

async function filter(page) {
  await page.goto(`${BASE}/routes`);
  const times = await page.evaluate(() => {
    const field = document.querySelector("#filter");
    const took = [];
    for (const text of ["p", "pay", "payments", "payments-0775", "nothing fits this", "", "accounts v1", "0042"]) {
      const start = performance.now();
      field.value = text;
      field.dispatchEvent(new Event("input"));
      document.body.getBoundingClientRect(); // forces a layout
      took.push(performance.now() - start);
    }
    return took;
  });
  const longest = Math.max(...times);
  expect(`1,000 routes are filtered in ${longest.toFixed(0)} ms`, longest < 200);
  const shown = await page.evaluate(() => [...document.querySelectorAll("#routes tbody tr")].filter((row) => row.checkVisibility()).map((row) => row.querySelector("th").textContent));
  expect("the filter shows what fits", shown.join() === "media-0042", shown.join());
  await page.evaluate(() => {
    const field = document.querySelector("#filter");
    field.value = "nothing fits";
    field.dispatchEvent(new Event("input"));
  });
  expect("that nothing fits is said", await page.evaluate(() => document.querySelector("#none").checkVisibility()));
}

async function keys(page) {
  await page.goto(`${BASE}/routes`);
  await page.keyboard.press("/");
  expect("/ leads to the filter", await page.evaluate(() => document.activeElement.id === "filter"));
  await page.keyboard.type("search-0001");
  await page.keyboard.press("Escape");
  expect("Escape leaves the field", await page.evaluate(() => document.activeElement.id !== "filter"));
  await page.keyboard.press("?");
  expect("? lists the keys", await page.evaluate(() => document.querySelector("#help").open));
  await page.keyboard.press("Escape");
  expect("Escape closes the list", await page.evaluate(() => !document.querySelector("#help").open));
  await page.keyboard.press("g");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("u")]);
  expect("g u leads to Upstreams", page.url() === `${BASE}/upstreams`, page.url());
}

async function drain(page) {
  // By keyboard alone: to the button, the choice, and the end.
  const reach = async (test) => {
    for (let n = 0; n < 60; n += 1) {
      await page.keyboard.press("Tab");
      if (await page.evaluate(test)) return true;
    }
    return false;
  };
  expect("the keyboard reaches the button", await reach(() => document.activeElement.dataset.fillUrl?.includes("/orders/127.0.0.2")));
  await page.keyboard.press("Enter");
  expect("the dialog says which endpoint", await page.evaluate(() => document.querySelector("#take-out[open]")?.textContent.includes("127.0.0.2")));
  await page.keyboard.press("Enter"); // on the choice that is already made
  await until("it drains", page, () => document.querySelector("#upstreams").innerText.includes("draining"));
  await until("it says until when", page, () => /ends in (59 min|1 h)/.test(document.querySelector("#upstreams").innerText));
  await until("the navigation counts it", page, () => document.querySelector('nav [href="/upstreams"] .badge')?.textContent.startsWith("2"));
  await click(page, "#upstreams button", "Put back in");
  await until("it is put back in", page, () => !document.querySelector("#upstreams").innerText.includes("draining"));
}

async function explain(page) {
  await page.goto(`${BASE}/routes`);
  await page.type("#url", "http://beta.example.com/orders/7");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  const text = await page.evaluate(() => document.querySelector(".answer").innerText);
  expect("explain tells who wins", /split takes it/.test(text), text);
  expect("explain tells who lost and why", /orders[\s\S]*host/.test(text), text);
  expect("explain tells the filters", text.includes("request_id"), text);
}

async function failure(page) {
  await page.goto(`${BASE}/failures?kind=failed&cause=connect_refused&route=`);
  await clickTo(page, ".cases a", "reports");
  const text = await page.evaluate(() => document.querySelector("main").innerText);
  expect("a failure is told in a sentence", text.includes("127.0.0.1:1") && text.includes("refused"), text);
  expect("with the key that would change it, and its line", /console\.yaml:\d+/.test(text), text);
}

async function editor(page) {
  const managed = () => readFileSync(`${WORK}/managed.yaml`, "utf8");
  const before = managed();
  await page.goto(`${BASE}/config`);
  await clickTo(page, ".actions a", "Edit");
  const shown = await page.$eval("#text", (text) => text.value);
  expect("the text is there with its comments", shown === before.replace('"a-key-that-nobody-may-see"', '"***1"'), shown);
  expect("no secret is", !(await page.content()).includes("a-key-that-nobody-may-see"));
  expect("nothing can be saved as long as nothing has changed", await page.$eval("#save", (save) => save.disabled));

  const edit = async (from, to) => {
    await page.$eval("#text", (text, from, to) => {
      const at = text.value.indexOf(from);
      text.focus();
      text.setRangeText(to, at, at + from.length, "end");
      text.dispatchEvent(new Event("input"));
    }, from, to);
  };
  await edit("upstream: orders", "upstrem: orders");
  await until("a mistake is marked at its line", page, () => document.querySelector(".gutter b")?.textContent === "5");
  await until("and told", page, () => document.querySelector(".problems")?.innerText.includes("upstrem"));
  expect("and cannot be saved", await page.$eval("#save", (save) => save.disabled));
  await page.click(".problems button");
  expect("its line is found", await page.$eval("#text", (text) => text.value.slice(text.selectionStart, text.selectionEnd).trim() === "upstrem: orders"));
  await shoot(page, "editor-mistake", DESK);

  await edit("upstrem: orders", "upstream: accounts");
  await until("what would change is shown", page, () => document.querySelector(".diff")?.innerText.includes("routes.coupons.upstream"));
  await until("it may be saved then", page, () => !document.querySelector("#save").disabled);
  await shoot(page, "editor-change", DESK);
  await page.type("#message", "accounts do coupons now — ☂");
  await page.select('[name="confirm"]', "1m");
  await Promise.all([page.waitForNavigation(), page.click("#save")]);
  expect("it runs", managed() === before.replace("upstream: orders", "upstream: accounts"), managed());
  const history = await page.evaluate(() => document.querySelector("main").innerText);
  expect("the history has it, with the reason", history.includes("accounts do coupons now — ☂") && history.includes("anna"), history);
  await until("it counts down until somebody confirms it", page, () => /in \d+ s/.test(document.querySelector(".trial")?.innerText ?? ""));
  await shoot(page, "trial", DESK);
  await click(page, ".trial button", "Confirm");
  await until("confirmed, it stays", page, () => !document.querySelector(".trial"));

  // The same text again: not a byte of the file changes.
  await page.goto(`${BASE}/config/edit`);
  const now = managed();
  await edit("# until", "# Until");
  await until("a comment is worth a save", page, () => !document.querySelector("#save").disabled);
  await edit("# Until", "# until");
  await until("and taken back it is not", page, () => document.querySelector("#save").disabled && document.querySelector("#verdict").innerText.includes("Nothing has changed"));
  await page.$eval("#text", (text) => text.focus());
  await page.keyboard.down("Control");
  await page.keyboard.press("s");
  await page.keyboard.up("Control");
  expect("a save that changes nothing leaves the file as it is", managed() === now);
}

async function history(page) {
  await page.goto(`${BASE}/history`);
  await clickTo(page, ".history a", "Changes");
  await shoot(page, "changes", DESK);
  expect("the difference of two revisions is shown", (await page.evaluate(() => document.querySelector(".diff").innerText)).includes("accounts"));
  await page.goto(`${BASE}/history`);
  await clickTo(page, ".history a", "Go back…");
  expect("going back shows first what it changes", (await page.evaluate(() => document.querySelector("main").innerText)).includes("What would change"));
  await shoot(page, "go-back", DESK);
  await page.type("#why", "it was better before");
  await Promise.all([page.waitForNavigation(), click(page, ".go-back button", "Go back")]);
  await until("it went back", page, () => document.querySelector(".history li.runs").innerText.includes("it was better before"));
  expect("the file too", readFileSync(`${WORK}/managed.yaml`, "utf8").includes("upstream: orders"));
}

async function owners(page) {
  await page.goto(`${BASE}/config/routes/hello`);
  await click(page, ".moves button", "Adopt");
  await until("adopting says what is left to do", page, () => document.querySelector("#moved:not([hidden])")?.innerText.includes("counts until you delete it"));
  await shoot(page, "adopted", DESK);
  await page.reload();
  await click(page, ".moves button", "Release");
  await until("what was adopted is left to its file again", page, () => document.querySelector("#moved:not([hidden])")?.innerText.includes("no longer has it"));
  await page.goto(`${BASE}/config/routes/coupons`);
  await click(page, ".moves button", "Release");
  await until("releasing shows what to paste", page, () => document.querySelector("#moved pre:not([hidden])")?.innerText.includes("coupons:"));
  await shoot(page, "released", DESK);
}

async function fleet(page) {
  expect("without a fleet there is no screen for it", (await page.$('nav a[href="/fleet"]')) === null);
  await page.goto(`${FLEET}/fleet`);
  await until("the fleet shows why a node refused its bundle", page, () => document.querySelector("main").innerText.includes("ONLY_HERE"));
  await until("and its nodes", page, () => document.querySelector("main").innerText.includes("edge-2"));
  for (const viewport of [DESK, PHONE]) {
    await page.setViewport(viewport);
    for (const theme of ["light", "dark"]) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
      await page.reload();
      await check(page, "fleet", viewport, theme);
    }
  }
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
  await page.setViewport(DESK);
}

async function themes(page) {
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
  await page.goto(`${BASE}/`);
  await page.click("#theme");
  await page.reload();
  expect("a theme that was chosen stays", await page.evaluate(() => document.documentElement.dataset.theme === "dark"));
  await page.click("#theme");
  await page.evaluate(() => { document.cookie = "weir_theme=; path=/; max-age=0"; });
}

// === every screen ===

const SCREENS = {
  overview: "/",
  routes: "/routes?q=",
  explain: "/routes?method=GET&url=http%3A%2F%2Fbeta.example.com%2Forders%2F7",
  route: "/routes/orders",
  upstreams: "/upstreams",
  upstream: "/upstreams/orders",
  failures: "/failures",
  failure: null,
  config: "/config",
  thing: "/config/routes/orders",
  editor: "/config/edit",
  history: "/history",
  certificates: "/certificates",
  consumers: "/consumers",
};

async function shoot(page, name, viewport, theme = "light") {
  if (!SHOTS) return;
  mkdirSync(SHOTS, { recursive: true });
  const picture = await page.screenshot({ fullPage: false });
  writeFileSync(`${SHOTS}/${name}-${viewport === PHONE ? "phone" : "desk"}-${theme}.png`, picture);
}

async function screens(page) {
  await page.goto(`${BASE}/failures?kind=failed&cause=connect_refused&route=`);
  SCREENS.failure = await page.$eval(".cases a", (link) => link.getAttribute("href"));
  for (const viewport of [DESK, PHONE]) {
    await page.setViewport(viewport);
    for (const theme of ["light", "dark"]) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
      for (const [name, path] of Object.entries(SCREENS)) {
        await page.goto(BASE + path);
        await check(page, name, viewport, theme);
      }
    }
  }
  await page.setViewport({ width: 320, height: 700 });
  for (const path of Object.values(SCREENS)) {
    await page.goto(BASE + path);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    if (wide > 320) expect(`${path} fits 320 px`, false, String(wide));
  }
  await page.setViewport(DESK);
}

async function check(page, name, viewport, theme) {
  const size = viewport === PHONE ? "phone" : "desk";
  await shoot(page, name, viewport, theme);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  const told = violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 160)} ${n.failureSummary}`).join(" | ")}`);
  expect(`${name}, ${size}, ${theme}: axe finds nothing and it fits`, violations.length === 0 && wide <= 0, `${wide} px too wide\n${told.join("\n")}`);
}

async function withoutScript() {
  const page = await browser.newPage();
  await page.setJavaScriptEnabled(false);
  await page.setViewport(DESK);
  const rows = [];
  for (const path of ["/", "/routes", "/upstreams", "/failures", "/config", "/history"]) {
    await page.goto(BASE + path);
    rows.push((await page.content()).length > 2000 && (await page.$("h1")) !== null);
  }
  expect("pages can be read without a script", rows.every(Boolean));
  await page.close();
}

async function roles() {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  await page.setViewport(DESK);
  listen(page);
  await signIn(page, "token-of-wallboard");
  await page.goto(`${BASE}/upstreams`);
  expect("who may only look is offered nothing", (await page.$$("[data-call], [data-open='take-out']")).length === 0);
  const status = await page.evaluate(async () => {
    const csrf = document.querySelector('meta[name="csrf"]').content;
    return (await fetch("/reload", { method: "POST", headers: { "x-weir-csrf": csrf } })).status;
  }).catch(() => 0);
  expect("and may do nothing", status === 403, String(status));
  await clickTo(page, ".foot button", "Sign out");
  expect("signed out, one is shown the way in", page.url().includes("/sign-in"));
  await shoot(page, "sign-in", DESK);
  await page.setViewport(PHONE);
  await shoot(page, "sign-in", PHONE);
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => axe.run());
  expect("sign-in: axe finds nothing", violations.length === 0, JSON.stringify(violations.map((v) => [v.id, v.nodes.map((n) => n.html)])));
  await page.goto(`${BASE}/`);
  expect("and gets nowhere without", page.url().includes("/sign-in"));
  await context.close();
}

try {
  await main();
} catch (error) {
  expect("the judge came to its end", false, error.stack);
} finally {
  await browser.close();
}
process.exit(failed ? 1 : 0);
