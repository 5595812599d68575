"use strict";

const assert = require("assert");
const { greeting, grouped } = require("./index.js");

assert.strictEqual(greeting("<you>"), "Hello, &lt;you&gt;!");
assert.deepStrictEqual(grouped(["ab", "ac", "b"]), { a: ["ab", "ac"], b: ["b"] });
