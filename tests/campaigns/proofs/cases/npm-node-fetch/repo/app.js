const fetch = require('node-fetch');

// A feed's text, asked for with the subscriber's cookie.
exports.feed = async (url, cookie) => (await fetch(url, { headers: { cookie } })).text();
