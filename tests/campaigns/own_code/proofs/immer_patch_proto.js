// A patch whose path leads to a prototype must not change what every object inherits.
import { applyPatches, enableAllPlugins } from '../src/immer'

enableAllPlugins()

const paths = [
  ['__proto__', 'polluted'],
  ['constructor', 'prototype', 'polluted']
]

test.each(paths.map((path) => [path.join('.'), path]))('a patch of %s pollutes nothing', (_, path) => {
  try {
    applyPatches({}, [{ op: 'add', path, value: 'yes' }])
  } catch (refused) {
    // To refuse such a patch is as good.
  }
  const seen = {}.polluted
  delete Object.prototype.polluted
  expect(seen).toBe(undefined)
})
