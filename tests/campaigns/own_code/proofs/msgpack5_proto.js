// A message whose map has a key "__proto__" must not decide what its decoded object inherits from.
'use strict'

const assert = require('node:assert')
const msgpack = require('./')

const payload = { hello: 'world' }
Object.defineProperty(payload, '__proto__', { value: { polluted: true }, enumerable: true })
const encoded = msgpack().encode(payload)

let decoded
try {
  decoded = msgpack().decode(encoded)
} catch (refused) {
  decoded = {} // To refuse such a message is as good.
}
assert.strictEqual(decoded.polluted, undefined, 'the message chose the prototype of its decoded object')
