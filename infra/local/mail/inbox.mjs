// The mail service of the local stack: SES v2's wire protocol, and a page with the mail that was sent. It prints its
// address as one line of JSON, and ends when its standard input does.

import ses from "aws-ses-v2-local";

const server = await (ses.default ?? ses)({ host: "127.0.0.1", port: Number(process.env.PORT ?? 0) });
console.log(JSON.stringify({ inbox_url: `http://127.0.0.1:${server.address().port}` }));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
