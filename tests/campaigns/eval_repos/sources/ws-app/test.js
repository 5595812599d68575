"use strict";

const assert = require("assert");
const { echo } = require("./index.js");

echo().then((told) => assert.strictEqual(told, "tea"));
