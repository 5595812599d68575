"use strict";

const assert = require("assert");
const { page } = require("./index.js");

assert.ok(page("# Tea").includes("Tea</h1>"));
