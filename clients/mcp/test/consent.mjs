// A browser without a script: signs the demo owner in at the local issuer, and answers the consent page.

import { owner, stack } from './world.mjs';

/** Opens the authorization URL, signs in, and sends the consent form. Returns the URL to which the client is redirected. */
export async function consent(authorizationUrl, fields) {
  const cookies = new Map();
  const open = async (url, form) => {
    const headers = { Cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') };
    if (form) headers.Origin = new URL(url).origin;
    const body = form && new URLSearchParams(form);
    const response = await fetch(url, { method: form ? 'POST' : 'GET', headers, body, redirect: 'manual' });
    for (const cookie of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie);
      if (/Max-Age=0/.test(cookie)) cookies.delete(name);
      else cookies.set(name, value);
    }
    const location = response.headers.get('location');
    if (location) return { location: new URL(location, url).href };
    return { html: await response.text(), status: response.status };
  };
  const follow = async (url) => {
    const seen = await open(url);
    return seen.location?.startsWith(stack.base_url) ? follow(seen.location) : { ...seen, url };
  };
  const attribute = (text) => text.replaceAll('&amp;', '&').replaceAll('&quot;', '"');
  const signIn = await follow(String(authorizationUrl));
  const start = attribute(/href="(\/dashboard\/sign-in\/start[^"]*)"/.exec(signIn.html)[1]);
  const issuer = await open(new URL(start, stack.base_url).href);
  const [, email] = /name="email" value="([^"]+)"/.exec((await open(issuer.location)).html);
  const page = await follow((await open(issuer.location, { email })).location);
  const token = /name="form_token" value="([^"]+)"/.exec(page.html.split('action="/dashboard/connect')[1])[1];
  const form = [...Object.entries({ per_day: '1', expires_days: '1', decision: 'allow', ...fields }), ['form_token', token]];
  for (const may of ['read', 'pay']) if (page.html.includes(`value="${may}"`)) form.push(['may', may]);
  const answered = await open(page.url, form);
  if (!answered.location) throw new Error(`the consent was rejected: ${answered.html}`);
  return new URL(answered.location);
}

/** Revokes all grants of the agent, as its owner does on the agent's page. */
export async function revokeGrants(agentId) {
  const { keys } = await owner('GET', `/agents/${agentId}/keys`);
  const grants = keys.filter((key) => key.client_name && key.status === 'active');
  for (const { key_id } of grants) await owner('DELETE', `/agents/${agentId}/keys/${key_id}`);
  return grants;
}
