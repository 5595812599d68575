'use strict';

const ORIGIN = 'https://shop.example';
const HOME = '/';

/** Is this a page of our own site? */
function isLocal(target) {
  return typeof target === 'string' && target.startsWith('/');
}

/** Where to go after a login, from the query string of the login page. */
function afterLogin(query) {
  const next = new URLSearchParams(query).get('next');
  return isLocal(next) ? next : HOME;
}

/** The headers of the response that sends a visitor there. */
function redirect(query) {
  return { status: 303, headers: { Location: afterLogin(query) } };
}

/** The login page's address, from which one comes back to `page`. */
function loginUrl(page) {
  return `${ORIGIN}/login?${new URLSearchParams({ next: page })}`;
}

module.exports = { afterLogin, redirect, loginUrl };
