'use strict';

const fs = require('node:fs');
const path = require('node:path');

const INDEX = 'index.html';

/** The path part of a request's URL, decoded; without its query. */
function requestPath(url) {
  return decodeURIComponent(url.split('?')[0]);
}

/** The file below `root` that a URL asks for; null where there is none to serve. */
function locate(root, url) {
  let file = path.join(root, requestPath(url));
  if (file.endsWith(path.sep)) {
    file = path.join(file, INDEX);
  }
  return fs.existsSync(file) ? file : null;
}

/** The content of what a URL asks for; null where there is none to serve. */
function read(root, url) {
  const file = locate(root, url);
  return file === null ? null : fs.readFileSync(file, 'utf8');
}

module.exports = { locate, read };
