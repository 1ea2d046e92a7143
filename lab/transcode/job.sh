# Waits for the common start, transcodes, and reports.
set -eu

# now sets up to the hundredths of a second since the boot: date has whole seconds only in some images.
now() {
	read -r up _ </proc/uptime
	up=${up%.*}${up#*.}
}

# The start is written here from outside: seconds since 1970 by this node's clock.
tries=0
until [ -e start ]; do
	tries=$((tries + 1))
	[ $tries -lt 3000 ] || { echo "the start did not arrive within ten minutes" >&2; exit 1; }
	sleep 0.2
done
start=$(cat start)

# At the begin of a second both clocks are known.
first=$(date +%s)
while second=$(date +%s); [ "$second" = "$first" ]; do sleep 0.02; done
now
[ "$second" -lt "$start" ] || { echo "the start arrived too late; run it again" >&2; exit 1; }
began=$((up + 100 * (start - second)))
rest=$((began - up))
sleep "$((rest / 100)).$(printf %02d $((rest % 100)))"

# The time counts from the common start, so it includes the wait for a CPU before the first instruction.
ffmpeg -nostdin -hide_banner -loglevel error -y -progress progress \
	-stream_loop -1 -i clip.mkv -t "$MEDIA_SECONDS" -c:v libx264 -preset medium -threads "$THREADS" out.mkv
now

frames=$(sed -n 's/^frame=//p' progress | tail -n 1)
{
	echo "hundredths $((up - began))"
	echo "frames $frames"
	times # of this shell, then of its children: user, system
} >"$REPORT"
