// With ignoreEmpty, a row of many blanks and commas must be read within seconds.
import { parseString } from '../src'

describe('ignoreEmpty', () => {
  it('does not backtrack over a row of blanks and commas', (done) => {
    const started = process.cpuUsage()
    parseString(`${' ,'.repeat(25)}-`, { ignoreEmpty: true, delimiter: '\t' })
      .on('error', done)
      .on('data', () => {})
      .on('end', () => {
        const seconds = process.cpuUsage(started).user / 1e6
        expect(seconds).toBeLessThan(2)
        done()
      })
  }, 600000)
})
