// The mail service of the local stack. It implements SES v2's wire protocol, and has a page with the sent mail. The
// program prints its address as a line of JSON, and ends when its standard input closes.

import ses from "aws-ses-v2-local";

const server = await (ses.default ?? ses)({ host: "127.0.0.1", port: Number(process.env.PORT ?? 0) });
console.log(JSON.stringify({ inbox_url: `http://127.0.0.1:${server.address().port}` }));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
