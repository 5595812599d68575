// Loaded before npm, yarn and pnpm: they reach the hosts that they may ask, and no others (ADR-0096).
//
// A host may be asked if the user's own configuration names it (`allowed`), if an allowed registry says that
// its archives are there (`dist.tarball`), or if an allowed host redirects there. What a package or the
// repository names is not enough. Any other connection fails before a name is looked up, and the host is
// written to `report`.
'use strict';
const fs = require('node:fs');
const http = require('node:http');
const https = require('node:https');
const net = require('node:net');
const zlib = require('node:zlib');

// Of an answer that is searched for archives' addresses: the largest have some 100 MB.
const MAX_ANSWER = 256 * 1024 * 1024;
const NEAR = /^(localhost\.?|.*\.localhost\.?|0\..*|127\..*|10\..*|169\.254\..*|192\.168\..*|172\.(1[6-9]|2\d|3[01])\..*|[0-9a-f:]*:[0-9a-f:.]*|\[.*\])$/i;
const USUAL = { 'https:': '443', 'http:': '80' };
const TARBALL = /"tarball"\s*:\s*"(https?:[^"]+)"/g;

module.exports = ({ allowed, proxies, report }) => {
  const may = new Set(allowed);
  const through = new Set(proxies);
  const refused = new Set();

  const bare = (host) => String(host).toLowerCase().replace(/^\[(.*)\]$/, '$1');
  const forms = (host, port) => [bare(host), `[${bare(host)}]`].flatMap((it) => [it, `${it}:${port}`]);
  const admitted = (host, port) => forms(host, port).some((it) => may.has(it));

  function refusal(host, port) {
    const shown = port === '443' || port === '80' ? bare(host) : `${bare(host)}:${port}`;
    if (!refused.has(shown)) {
      refused.add(shown);
      fs.appendFileSync(report, `${shown}\n`);
    }
    const error = new Error(`${shown} is named by the repository only, and was not asked`);
    return Object.assign(error, { code: 'EHOSTREFUSED' });
  }

  // An address that `teller`, who may be asked, says. Of this machine or network only their own hosts tell.
  function learn(address, teller) {
    try {
      const url = new URL(address);
      if (url.protocol in USUAL && (!NEAR.test(url.hostname) || NEAR.test(bare(teller)))) {
        may.add(`${bare(url.hostname)}:${url.port || USUAL[url.protocol]}`);
      }
    } catch {
      // no address
    }
  }

  function learnArchives(body, encoding, teller) {
    let text;
    try {
      const undo = { gzip: zlib.gunzipSync, br: zlib.brotliDecompressSync, deflate: zlib.inflateSync };
      text = (encoding in undo ? undo[encoding](body, { maxOutputLength: MAX_ANSWER }) : body).toString();
      const unknown = [...text.matchAll(TARBALL)].some(([, address]) => {
        const url = new URL(address);
        return !admitted(url.hostname, url.port || USUAL[url.protocol]);
      });
      if (!unknown) return;
      // A package's own fields may look like these: only what the registry itself writes counts.
      const document = JSON.parse(text);
      for (const release of [document, ...Object.values(document.versions || {})]) {
        if (release && release.dist) learn(release.dist.tarball, teller);
      }
    } catch {
      // no document of a registry
    }
  }

  function watch(response, base, host) {
    if (response.statusCode >= 300 && response.statusCode < 400 && response.headers.location) {
      try {
        learn(new URL(response.headers.location, base).href, host);
      } catch {
        // leads nowhere
      }
    }
    if (!/json/.test(response.headers['content-type'] || '')) return;
    const chunks = [];
    let size = 0;
    const push = response.push;
    response.push = function (chunk, ...rest) {
      if (chunk !== null && size <= MAX_ANSWER) {
        chunks.push(chunk);
        size += chunk.length;
      } else if (chunk === null && size <= MAX_ANSWER) {
        learnArchives(Buffer.concat(chunks), response.headers['content-encoding'], host);
      }
      return push.call(this, chunk, ...rest);
    };
  }

  for (const [scheme, module] of [['http:', http], ['https:', https]]) {
    const request = module.request;
    const asked = (input, given, callback) => {
      let options = {};
      if (typeof input === 'string') options = urlOptions(new URL(input));
      else if (input instanceof URL) options = urlOptions(input);
      else [given, callback] = [input, given];
      if (typeof given === 'function') callback = given;
      else options = { ...options, ...given };
      return [options, callback];
    };
    module.request = function (...args) {
      const [options, callback] = asked(...args);
      const target = targetOf(options, scheme);
      if (options.socketPath || !admitted(target.hostname, target.port)) {
        const error = refusal(options.socketPath || target.hostname, target.port);
        const refusing = { ...options, agent: undefined, socketPath: undefined };
        // The request fails as one whose connection failed, with whatever its client does then.
        refusing.createConnection = () => {
          throw error;
        };
        return request.call(module, refusing, callback);
      }
      const sent = request.apply(module, args);
      sent.prependListener('response', (response) => watch(response, target.href, target.hostname));
      return sent;
    };
    module.get = function (...args) {
      const sent = module.request(...args);
      sent.end();
      return sent;
    };
  }

  function urlOptions(url) {
    const auth = url.username || url.password;
    return {
      protocol: url.protocol,
      hostname: url.hostname.replace(/^\[(.*)\]$/, '$1'),
      path: `${url.pathname}${url.search}`,
      href: url.href,
      ...(url.port && { port: Number(url.port) }),
      ...(auth && { auth: `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}` }),
    };
  }

  // Who is asked in the end: a request to a proxy names that in its path.
  function targetOf(options, scheme) {
    const protocol = options.protocol || scheme;
    const host = options.hostname || options.host || 'localhost';
    const port = String(options.port || options.defaultPort || USUAL[protocol] || '');
    const path = String(options.path || '/');
    const isProxy = forms(host, port).some((it) => through.has(it));
    if (isProxy && options.method === 'CONNECT') {
      const [, hostname, number] = /^\[?(.*?)\]?:(\d+)$/.exec(path) || [];
      return { hostname, port: number, href: `https://${path}/` };
    }
    if (isProxy && /^https?:\/\//i.test(path)) {
      const url = new URL(path);
      return { hostname: url.hostname, port: url.port || USUAL[url.protocol], href: url.href };
    }
    return { hostname: host, port, href: `${protocol}//${host}:${port}${path}` };
  }

  // Below all of that: no connection by another way either.
  const connect = net.Socket.prototype.connect;
  net.Socket.prototype.connect = function (...args) {
    const first = Array.isArray(args[0]) ? args[0][0] : args[0];
    const options =
      typeof first === 'object' && first !== null
        ? first
        : /^\d+$/.test(String(first))
          ? { port: first, host: typeof args[1] === 'string' ? args[1] : 'localhost' }
          : { path: first };
    const host = options.host || 'localhost';
    const port = String(options.port);
    if (options.path || !(admitted(host, port) || forms(host, port).some((it) => through.has(it)))) {
      const error = refusal(options.path || host, port);
      process.nextTick(() => this.destroy(error));
      return this;
    }
    return connect.apply(this, args);
  };
  require('node:module').syncBuiltinESMExports();
};
