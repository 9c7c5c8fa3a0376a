// A provider for oidc.py, with oidc-provider (npm), which the OpenID Foundation has certified.
//
// usage: oidc_provider.mjs MODULE PORT LOG KID
//
// Any user name may log in. Access tokens last two seconds, refresh tokens work once, and each start makes new keys.
// Grants and refusals are written to LOG, one per line.
import { generateKeyPairSync } from "node:crypto";
import { appendFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [module, port, log, kid] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(module));
const key = (type, options) => generateKeyPairSync(type, options).privateKey.export({ format: "jwk" });
const keys = [
  { ...key("rsa", { modulusLength: 2048 }), kid: `${kid}-rsa`, use: "sig", alg: "RS256" },
  { ...key("ec", { namedCurve: "P-256" }), kid: `${kid}-ec`, use: "sig", alg: "ES256" },
];
const client = (name, more) => ({
  client_id: name,
  client_secret: `the-secret-of-${name}-in-this-judge:/+ %`,
  redirect_uris: ["https://app.test/cb"],
  post_logout_redirect_uris: ["https://app.test/bye"],
  grant_types: ["authorization_code", "refresh_token"],
  ...more,
});

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [client("app"), client("signs-es256", { id_token_signed_response_alg: "ES256", redirect_uris: ["https://app.test/es/cb"] })],
  jwks: { keys },
  cookies: { keys: ["only a judge"] },
  claims: { openid: ["sub"], email: ["email"] },
  conformIdTokenClaims: false,
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, email: `${id}@example.com` }) }),
  features: { devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: true }, userinfo: { enabled: false } },
  pkce: { required: () => true },
  rotateRefreshToken: true,
  ttl: { AccessToken: 2, IdToken: 60, RefreshToken: 600, Session: 600, Grant: 600, Interaction: 600, AuthorizationCode: 60 },
});
const note = (line) => appendFileSync(log, `${line}\n`);
provider.on("grant.success", (ctx) => note(`granted ${ctx.oidc.params.grant_type}`));
provider.on("grant.error", (ctx, error) => note(`refused ${ctx.oidc.params?.grant_type} ${error.error}`));
provider.on("authorization.error", (_, error) => note(`refused authorization ${error.error}`));
provider.on("end_session.success", () => note("ended session"));
provider.on("server_error", (_, error) => note(`failed ${error.stack}`));
provider.listen(Number(port), "127.0.0.1");
