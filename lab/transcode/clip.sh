# Makes the clip that the job of this pod transcodes again and again. It is the same in every pod: the noise has a fixed seed.
set -eu
command -v ffmpeg >/dev/null || { echo "the image has no ffmpeg in its PATH" >&2; exit 127; }
ffmpeg -nostdin -hide_banner -loglevel error -y \
	-f lavfi -i "testsrc2=size=1280x720:rate=$FRAMES_PER_SECOND,noise=alls=6:allf=t" -t 2 \
	-c:v libx264 -preset ultrafast -crf 20 -pix_fmt yuv420p clip.mkv
