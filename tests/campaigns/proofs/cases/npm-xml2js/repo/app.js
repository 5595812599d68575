const { parseStringPromise } = require('xml2js');

// An order; one without items has an empty list.
exports.order = async (xml) => {
  const { order } = await parseStringPromise(xml);
  if (!order.hasOwnProperty('item')) order.item = [];
  return order;
};
