"use strict";

const marked = require("marked");

exports.page = (text) => `<main>${marked(text)}</main>`;
