"use strict";

const _ = require("lodash");

exports.greeting = (name) => _.template("Hello, <%- name %>!")({ name });

exports.grouped = (words) => _.groupBy(words, (word) => word[0]);
