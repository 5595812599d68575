// A content type is compared without regard to case, or a form of "text/plaiN" passes the check of its origin.
import assert from 'node:assert'
import { is_form_content_type } from './src/utils/http.js'

for (const type of ['text/plaiN', 'Multipart/Form-Data; boundary=x', 'APPLICATION/x-www-form-urlencoded']) {
  const request = new Request('http://localhost/', { method: 'POST', headers: { 'content-type': type } })
  assert.ok(is_form_content_type(request), `a form sent as ${type} is not taken for a form`)
}
