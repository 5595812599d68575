const { http } = require('follow-redirects');

// A file's text, asked for with the account's cookie.
exports.download = (url, cookie) =>
  new Promise((done, failed) => {
    const request = http.get(url, { headers: { cookie } }, (response) => {
      let text = '';
      response.on('data', (part) => { text += part; });
      response.on('end', () => done(text));
    });
    request.on('error', failed);
  });
